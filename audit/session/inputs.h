// Finds the inputs of a command line: files and directories become a list of inputs, each with the
// reader that recognised it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct Inputs {
  // In the order of the command line; files of a directory sorted by path. A deque, because readers
  // keep pointers to its elements.
  std::deque<InputReport> reports;
  struct Set {
    const Reader* reader;
    std::vector<InputReport*> files;
  };
  std::vector<Set> sets;           // one for each format that occurs
  std::vector<std::string> notes;  // about files of folders that no reader accepted
};

// Finds inputs. If `forced` is set, it reads every file; otherwise formats are recognised by
// content. `mapped`, if set, is tried before all others. `step` is the user's name of the step
// column, which identifies tables that no reader recognises otherwise. A file that occurs twice is
// read once. Problems (missing, unreadable, not recognised) are in the reports.
Inputs FindInputs(const std::vector<std::string>& paths, const Reader* forced,
                  const Reader* mapped = nullptr, const std::string& step = "");

}  // namespace plumbline::audit
