"""From models and rows to posteriors: by tables, densities, lines and samples."""
