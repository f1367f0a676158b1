from hypothesis import settings

# The first example of a property pays for imports and compilation, whatever it is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
