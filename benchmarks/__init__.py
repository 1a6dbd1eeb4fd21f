"""What memfit costs and saves, as ratios measured side by side in one run."""
