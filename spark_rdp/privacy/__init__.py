"""What a mechanism costs: verified from its mass function, audited from its samples."""
