// The end of a help text, after the options: the exit statuses, and example lines. help2man makes
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
  std::string note;                   // one line after them; empty: none
};

// Sets the end for `app` only. Subcommands that are added to it later would inherit it, so call
// this last.
void SetHelpEnd(CLI::App* app, const HelpEnd& end);

}  // namespace plumbline
