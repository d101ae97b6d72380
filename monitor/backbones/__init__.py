"""Backbones, their weights, the engines that run them, and the features they give."""
