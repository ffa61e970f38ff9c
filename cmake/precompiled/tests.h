// The same, for tests.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cmake/precompiled/messages.h"
