"""From statistics to what models are made of: cut points, structures, coefficients."""
