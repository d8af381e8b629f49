"""How the loader gets into training code: one module per code base, and the machinery that puts them in place.

`recognise` says which code base a loaded module belongs to, `patching` replaces its functions, `hook` does so when the
module is imported. Each code base has a module of its own, `fastyolo_data.integrations.<kind>`, imported when a module
of that kind was recognised, with one function:

    replacements(module, recognised) -> {name in `module`: what takes its place}

It may run in the middle of an import: `module` itself is complete, the packages around it need not be. A replacement
function has the stock signature and the stock function as `__wrapped__` (`functools.update_wrapper`). Every other
reference to the stock object in any loaded module is replaced as well, so classes that others inherit from stay.
"""
