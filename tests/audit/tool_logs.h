// Consoles of tools, a few literal lines each in the tool's own format, and their points.
#pragma once

#include <span>

namespace plumbline::audit::testing {

struct ToolLog {
  const char* name;  // of the file
  const char* text;
  const char* loss;    // a series
  const char* last;    // its last value as printed
  const char* points;  // "step series value", one per line
};

// Frameworks and tools that train networks.
std::span<const ToolLog> NetworkLogs();
// Reinforcement learning, trees and linear models, forms that people write by hand, and lines that
// another program wrapped.
std::span<const ToolLog> OtherLogs();

}  // namespace plumbline::audit::testing
