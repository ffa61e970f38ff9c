// The command line of plumb audit.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plumbline::audit {

struct AuditArguments {
  std::vector<std::string> paths;
  std::string format = "text";
  std::string output;
  std::string timeline;
  std::string as;
  std::string map;
  std::string fail_on = "error";
  std::vector<std::string> rules;
  std::vector<std::string> settings;
  std::vector<std::string> contracts;
  std::string invariants;
  std::vector<std::string> rule_files;
  std::string rule_python = "python3";
  double rule_seconds = 0;  // 0: the default of RuleLimits, here and below
  uint64_t rule_memory_mib = 0;
  std::string suppressions;
  std::string baseline;
  std::optional<int64_t> since;
  std::string server;
  std::string run;
  std::string send;
  bool follow = false;
  bool quiet = false;
  bool verbose = false;
  std::string standard_input;  // the file that holds standard input; empty if it is not read
};

// Adds the options to the command. `arguments` must live until the command has run.
void AddAuditOptions(CLI::App* command, AuditArguments* arguments);

}  // namespace plumbline::audit
