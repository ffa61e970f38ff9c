// What our programs say of a command line that they do not understand: what was expected, what was
// found, and the nearest word where one is near.
// Whoever includes <CLI/App.hpp> links to this library: see usage.cc.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace plumbline {

// Where help explains an option. Two blanks must lie between the two: help2man parts them there.
inline constexpr size_t kHelpColumn = 31;

// Checks of an option's value.
std::string Braced(const std::vector<std::string>& words);    // "{text,json}", as help has them
CLI::Validator OneOf(const std::vector<std::string>& words);  // two or more
CLI::Validator Between(int64_t low, int64_t high);
CLI::Validator AtLeastZero();  // any finite number

// Of an error that `app` threw when it parsed; not one of --help and --version, whose exit code is
// 0.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace plumbline
