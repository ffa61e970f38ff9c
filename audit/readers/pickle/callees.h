// What a call of a pickle would have built, told by its name: data, or something that can act.
#pragma once

#include <string>
#include <string_view>

#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// The name of what a call calls, "module.Outer.Inner" where the class lies in another one
// (protocols 2 and 3 write it as getattr of getattr). "a value that is no name": it calls none.
std::string NameOfCallee(const PickleTree& tree, PickleId call);

// Would the call build data? Objects of a trainer's own classes and of libraries are data, and so
// are the values in a table of Python's own types (paths, dates, enums, random states), a name of
// a class or a bound method of data (getattr). No data: all else of Python's standard library (os,
// subprocess, builtins.eval), the parts of torch and numpy that run code or load files, pickles of
// code (cloudpickle, dill), and calls of what is no name. Nothing is called in any case.
bool BuildsData(const PickleTree& tree, PickleId call);

// The same of a global's name alone.
bool NamesData(std::string_view name);

}  // namespace plumbline::audit
