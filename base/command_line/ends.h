// What help says behind the options: what the exit statuses mean, and lines to copy. help2man makes
// sections of it.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <utility>
#include <vector>

namespace plumbline {

struct HelpEnd {
  std::vector<std::pair<int, std::string>> statuses;
  std::vector<std::string> examples;  // whole command lines
  std::string note;                   // one line behind them; empty: none
};

// For `app` alone: subcommands that are added to it later would take it over, so it comes last.
void SetHelpEnd(CLI::App* app, const HelpEnd& end);

}  // namespace plumbline
