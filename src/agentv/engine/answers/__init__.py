"""Sources of answers: live targets, stored runs, probes, records carried over from an earlier run."""
