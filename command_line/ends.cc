#include "command_line/ends.h"

namespace plumbline {

void SetHelpEnd(CLI::App* app, const HelpEnd& end) {
  std::string text;
  const auto heading = [&](const char* words) {
    text += std::string(text.empty() ? "" : "\n") + words + "\n";
  };
  if (!end.statuses.empty()) heading("Exit status:");
  for (const auto& [status, meaning] : end.statuses)
    text += "  " + std::to_string(status) + "  " + meaning + "\n";
  if (!end.examples.empty()) heading("Examples:");
  // Four blanks: a list of subcommands has two.
  for (const std::string& example : end.examples) text += "    " + example + "\n";
  if (!end.note.empty()) text += "\n" + end.note + "\n";
  if (!text.empty()) text.pop_back();  // CLI11 ends the line
  app->footer(text);
}

}  // namespace plumbline
