// Scripts that complete a program's command line in a shell. Each word of them is taken from the
// program's own options when it prints the script.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace plumbline {

// bash, zsh, fish.
const std::vector<std::string>& CompletionShells();

// `shell`: one of CompletionShells(). What is hidden from help
// is not completed. Values: the words of OneOf, CLI::IsMember and CLI's transformers; files and
// directories where the type is FILE, PATH or DIR (a positional's name counts as its type); what
// the two below offer; otherwise nothing. Not const: CLI11 shows checks to owners alone.
std::string CompletionScript(CLI::App* app, const std::string& shell);

// Checks that let any value pass, and say what completion offers.
CLI::Validator Offer(const std::vector<std::string>& words);
// The first word of each line that the command prints at that time.
CLI::Validator OfferPrinted(const std::string& command);

}  // namespace plumbline
