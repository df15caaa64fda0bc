"""Historical modules of `syft.messaging`: `import syft` adds this folder to that package."""
