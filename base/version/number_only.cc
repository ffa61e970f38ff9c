// The version of a program that is not linked with the build's version: a test.
#include "base/version/build_version.h"

namespace plumbline {

const char kBuildVersion[] = PLUMBLINE_NUMBER "~dev0";

}  // namespace plumbline
