"""The reader of YAML 1.2 that manifests and configurations share: bounded, strict, and with positions."""
