"""Everything with weights: encoders and predictors, world models, decoders, readers, cloned policies."""
