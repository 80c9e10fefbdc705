"""Programs that make kubesim's recorded tables from a real control plane."""
