// Error messages for a command line: what was expected, what was found, and the nearest known word
// if one is near. Code that includes <CLI/App.hpp> links this library: see usage.cc.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace plumbline {

// The column at which help explains an option. Two blanks must precede it: help2man splits there.
inline constexpr size_t kHelpColumn = 31;

// Checks of an option's value.
std::string Braced(const std::vector<std::string>& words);    // "{text,json}", as help shows them
CLI::Validator OneOf(const std::vector<std::string>& words);  // two or more
CLI::Validator Between(int64_t low, int64_t high);
CLI::Validator AtLeastZero();  // any finite number

// Returns the message for an error that `app` threw when it parsed. Not for --help and --version,
// whose exit code is 0.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace plumbline
