// Scripts that complete a program's command line in a shell. Each word comes from the program's own
// options at the time when it prints the script.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace plumbline {

// Returns bash, zsh, fish.
const std::vector<std::string>& CompletionShells();

// Returns the script. `shell`: one of CompletionShells(). Options that help hides are not
// completed. Values are: the words of OneOf, CLI::IsMember and CLI's transformers; files and
// directories if the type is FILE, PATH or DIR (a positional's name counts as its type); the
// suggestions of the two functions below; otherwise nothing. Not const: CLI11 shows checks only to
// owners.
std::string CompletionScript(CLI::App* app, const std::string& shell);

// Returns a check that accepts any value and gives completion these words.
CLI::Validator Offer(const std::vector<std::string>& words);
// The same with the first word of each line that the command prints at that time.
CLI::Validator OfferPrinted(const std::string& command);

}  // namespace plumbline
