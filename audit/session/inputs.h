// What the command line names: files and directories become a list of inputs, each with the reader
// that recognised it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct Inputs {
  // In the order of the command line, a directory's files sorted by path. A deque: readers keep
  // pointers to its elements.
  std::deque<InputReport> reports;
  struct Set {
    const Reader* reader;
    std::vector<InputReport*> files;
  };
  std::vector<Set> sets;           // one a format that occurs
  std::vector<std::string> notes;  // on files of folders that no reader took
};

// `forced` reads every file as its format; nullptr: by content. `mapped`, where given, is asked
// before all others. `step`: what the user calls the column of steps, by which tables
// are known that none knows else. A file that occurs twice is taken once. Problems (missing,
// unreadable, not recognised) are in the reports.
Inputs FindInputs(const std::vector<std::string>& paths, const Reader* forced,
                  const Reader* mapped = nullptr, const std::string& step = "");

}  // namespace plumbline::audit
