"""Bounded jobs as plain functions: fit, score and embed a set of files on one machine."""
