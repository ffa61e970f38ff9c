// Of this room alone: the lines of names that a fix has. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::rules {

// A program that people have on the hosts of a run.
bool IsProgram(std::string_view word);

// What is pasted for it: itself, or a line with what it lacks; empty: nothing.
std::string LineOf(std::string_view name);

}  // namespace plumbline::rules
