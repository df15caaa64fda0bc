"""What the owner of a worker lets users do: permissions, the policy file, quotas, the audit log, and who speaks."""
