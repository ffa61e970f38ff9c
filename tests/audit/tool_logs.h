// Consoles of tools, a few literal lines each in the tool's own form, and the points in them.
#pragma once

#include <span>

namespace plumbline::audit::testing {

struct ToolLog {
  const char* name;  // of the file
  const char* text;
  const char* loss;    // a series
  const char* last;    // its last value as printed
  const char* points;  // "step series value", a line each
};

// Of frameworks and tools that train networks.
std::span<const ToolLog> NetworkLogs();
// Reinforcement learning, trees and linear models, forms that people write by hand, and lines that
// another program wrapped.
std::span<const ToolLog> OtherLogs();

}  // namespace plumbline::audit::testing
