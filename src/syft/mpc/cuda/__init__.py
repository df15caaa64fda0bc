"""The CUDA backend of `mpc.kernels` and `mpc.randomness`: ring arithmetic and key streams on the device.

Triton is imported by the first tensor that lies on a CUDA device, never by `import syft`.
"""
