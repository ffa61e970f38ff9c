// Services, and what a command line is read and its output written with.
#pragma once
#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "cmake/precompiled/services.h"
