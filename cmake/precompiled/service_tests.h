// The same, for tests of what serves.
#pragma once
#include <nlohmann/json.hpp>

#include "cmake/precompiled/services.h"
#include "cmake/precompiled/tests.h"
