"""Prove what a cluster's installed detectors notice: look, say, play, watch, judge; by a kubeconfig alone."""
