#include "agent/core/run/first_non_finite.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/printable.h"

namespace plumbline::agent {
namespace {

bool IsLoss(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("loss") != std::string::npos && lower.find("scale") == std::string::npos;
}

std::string CommandOf(const AgentOptions& options) {
  if (!options.server.empty())
    return absl::StrCat("plumb watch ", ShellPath(options.run), " --server ", options.server);
  return options.record_dir.empty() ? "" : "plumb audit " + ShellPath(options.record_dir);
}

}  // namespace

std::string ShellPath(const std::string& path) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:@%,";
  if (!path.empty() && path.find_first_not_of(kPlain) == std::string::npos) return path;
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string NonFiniteLine(const std::string& series, int64_t step, double value, uint32_t rank,
                          const std::string& command) {
  const char* const found = std::isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf";
  return absl::StrCat("plumbline: ", Printable(series), " is ", found, " in step ", step, ", rank ",
                      rank, ": the first non-finite loss (printed once).",
                      command.empty() ? "" : " Next: ", Printable(command));
}

void FirstNonFinite::Print(const Site& site, int64_t step, double value) {
  if (!IsLoss(site.op)) return;
  printed_ = true;
  const std::string line = NonFiniteLine(site.op, step, value, options_.rank, CommandOf(options_));
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace plumbline::agent
