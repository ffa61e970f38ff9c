// Messages, and what a command line is read and its output written with.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cmake/precompiled/messages.h"
