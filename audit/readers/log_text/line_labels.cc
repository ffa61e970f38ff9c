#include "audit/readers/log_text/line_labels.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"
#include "audit/readers/log_text/log_words.h"

namespace plumbline::audit {
namespace {

struct Labels {
  int64_t last = -1;
  size_t lines = 0, labels = 0;
  bool falls = false;

  void Take(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      int64_t label = -1;
      if (ReadLabel(line, &label) == 0) continue;
      ++lines;
      labels += label != last ? 1 : 0;
      falls |= label < last;
      last = label;
    }
  }
};

}  // namespace

bool LabelsAreEpochs(const std::string& path) {
  constexpr size_t kHead = 64 << 10, kTail = 16 << 10;
  Labels of;
  of.Take(FirstBytes(path, "", kHead));
  // The last bytes of the file may begin within a line, or overlap the first bytes.
  if (of.lines > 0 && !of.falls) {
    const std::string tail = LastBytes(path, kTail);
    const size_t begin = tail.find('\n');
    Labels end;
    if (begin != std::string::npos) end.Take(std::string_view(tail).substr(begin));
    of.falls = end.falls;
    of.lines += end.lines;
    of.labels = std::max(of.labels, end.labels + (end.last > of.last ? 1 : 0));
  }
  return !of.falls && of.labels >= 2 && of.lines >= 2 * of.labels;
}

}  // namespace plumbline::audit
