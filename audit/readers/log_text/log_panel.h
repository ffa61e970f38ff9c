// Reads a panel with a title. Each row has a group of metrics (rich; open-instruct): "| loss
// policy_avg: 0.1 | total_avg: 0.2 |".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

struct NamedNumber {
  std::string name;
  double value;
};

// Not thread-safe.
class LogPanel {
 public:
  // Returns true if the line is a rule with a title, which begins a panel.
  bool Begin(std::string_view line);
  bool open() const { return open_; }
  // Returns true if the line is a row of the panel, or continues the row above, which a narrow
  // terminal has wrapped. Any other line ends the panel.
  bool TakeRow(std::string_view line);
  // Ends the panel and appends its numbers, named "loss/policy_avg", to *box, up to `most` in all.
  void End(size_t most, std::vector<NamedNumber>* box);

 private:
  struct Row {
    std::string group, pairs;
  };
  bool open_ = false;
  std::vector<Row> rows_;
};

}  // namespace plumbline::audit
