// Finds the Python package of this installation.
#pragma once

#include <string>

namespace plumbline::audit {

// Returns the folder of the Python package plumbline that belongs to this program: of a build
// folder, a prefix, or the package itself (a wheel). Returns "" if there is none.
std::string PythonPackage();

}  // namespace plumbline::audit
