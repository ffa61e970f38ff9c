// Classifies a call of a pickle by its name: it would build data, or may have side effects.
#pragma once

#include <string>
#include <string_view>

#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// Returns the name of the callee: "module.Outer.Inner" for a nested class (protocols 2 and 3 write
// it as getattr of getattr). If the callee has no name, returns "a value that is no name".
std::string NameOfCallee(const PickleTree& tree, PickleId call);

// Returns true if the call would build data. Data are: objects of a trainer's own classes and of
// libraries, values of a table of Python's own types (paths, dates, enums, random states), a class
// name, and a bound method of data (getattr). Not data are: everything else in Python's standard
// library (os, subprocess, builtins.eval), the parts of torch and numpy that run code or load
// files, pickles of code (cloudpickle, dill), and calls without a name. Never calls anything.
bool BuildsData(const PickleTree& tree, PickleId call);

// The same, for a global that is named but not called.
bool NamesData(std::string_view name);

}  // namespace plumbline::audit
