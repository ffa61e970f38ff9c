#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "server/config.h"

namespace plumbline::server {
namespace {

std::string Where(const std::string& path, const toml::node& node) {
  return absl::StrCat(path, ":", node.source().begin.line);
}

const char* TypeName(const toml::node& node) {
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number with a fraction";
  if (node.is_boolean()) return "true or false";
  if (node.is_array()) return "an array";
  if (node.is_table()) return "a table";
  return "a date or time";
}

// Sets one option from its node; the returned text says what was expected, empty on success.
using Setter = std::function<std::string(const toml::node&)>;

Setter Text(std::string* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_string()) return "a string";
    *out = **n.as_string();
    return "";
  };
}

Setter Flag(bool* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_boolean()) return "true or false";
    *out = **n.as_boolean();
    return "";
  };
}

Setter Integer(int64_t* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_integer()) return "an integer";
    *out = **n.as_integer();
    return "";
  };
}

Setter Number(double* out) {
  return [out](const toml::node& n) -> std::string {
    if (!n.is_number()) return "a number";
    *out = *n.value<double>();
    return "";
  };
}

Setter Texts(std::vector<std::string>* out) {
  return [out](const toml::node& n) -> std::string {
    const toml::array* array = n.as_array();
    if (array == nullptr) return "an array of strings";
    std::vector<std::string> values;
    for (const toml::node& element : *array) {
      if (!element.is_string()) return "an array of strings";
      values.push_back(**element.as_string());
    }
    *out = std::move(values);
    return "";
  };
}

using Section = std::map<std::string, Setter, std::less<>>;
using Sections = std::map<std::string, Section, std::less<>>;

Sections KnownKeys(Config* c) {
  Sections s;
  s["listen"] = {{"grpc", Text(&c->grpc)},
                 {"http", Text(&c->http)},
                 {"insecure", Flag(&c->insecure)},
                 {"reflection", Flag(&c->reflection)}};
  s["data"] = {{"directory", Text(&c->data_directory)}};
  s["relay"] = {{"upstream", Text(&c->relay_upstream)}};
  s["ingest"] = {{"grace_seconds", Number(&c->grace_seconds)},
                 {"ack_seconds", Number(&c->ack_seconds)},
                 {"ack_batches", Integer(&c->ack_batches)},
                 {"queue_bytes", Integer(&c->queue_bytes)},
                 {"message_bytes", Integer(&c->message_bytes)},
                 {"waiting_batches", Integer(&c->waiting_batches)},
                 {"waiting_bytes", Integer(&c->waiting_bytes)},
                 {"max_streams", Integer(&c->max_streams)},
                 {"max_name_bytes", Integer(&c->max_name_bytes)}};
  s["journal"] = {{"sync", Text(&c->journal_sync)},
                  {"sync_seconds", Number(&c->journal_sync_seconds)},
                  {"commit_ms", Number(&c->journal_commit_ms)},
                  {"commit_bytes", Integer(&c->journal_commit_bytes)},
                  {"segment_bytes", Integer(&c->journal_segment_bytes)},
                  {"compress", Flag(&c->journal_compress)},
                  {"keep_days", Number(&c->journal_keep_days)},
                  {"keep_bytes", Integer(&c->journal_keep_bytes)}};
  s["checkpoint"] = {{"bytes", Integer(&c->checkpoint_bytes)},
                     {"seconds", Number(&c->checkpoint_seconds)}};
  s["store"] = {{"bytes", Integer(&c->store_bytes)}, {"days", Number(&c->store_days)}};
  s["incidents"] = {{"quiet_steps", Integer(&c->quiet_steps)}};
  s["rules"] = {{"run", Texts(&c->rules)},
                {"set", Texts(&c->settings)},
                {"window_steps", Integer(&c->window_steps)}};
  s["log"] = {{"level", Text(&c->log_level)}};
  return s;
}

// Levenshtein distance: insertions, deletions and replacements of one character.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

template <typename Map>
std::string DidYouMean(std::string_view word, const Map& known) {
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  std::string all;
  for (const auto& [name, unused] : known) {
    const size_t d = EditDistance(word, name);
    if (d < best_distance) {
      best_distance = d;
      best = name;
    }
    absl::StrAppend(&all, all.empty() ? "" : ", ", name);
  }
  if (best_distance <= 1 + word.size() / 3) return absl::StrCat("; did you mean \"", best, "\"?");
  return absl::StrCat("; known: ", all);
}

absl::Status ReadSection(const std::string& path, const std::string& name, const toml::table& table,
                         const Section& known) {
  for (const auto& [key, node] : table) {
    const std::string k(key.str());
    const auto setter = known.find(k);
    if (setter == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(Where(path, node), ": unknown key \"", k,
                                                     "\" in [", name, "]", DidYouMean(k, known)));
    }
    const std::string expected = setter->second(node);
    if (!expected.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(Where(path, node), ": ", name, ".", k,
                                                     " must be ", expected, ", found ",
                                                     TypeName(node)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ConfigKeys() {
  Config unused;
  std::vector<std::string> keys;
  for (const auto& [table, section] : KnownKeys(&unused)) {
    for (const auto& [key, setter] : section) keys.push_back(absl::StrCat(table, ".", key));
  }
  return keys;
}

absl::Status LoadConfigFile(const std::string& path, Config* config) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  toml::table root;
  try {
    root = toml::parse(text.str(), path);
  } catch (const toml::parse_error& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", e.source().begin.line, ": ", std::string(e.description())));
  }
  const Sections known = KnownKeys(config);
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const auto section = known.find(name);
    if (section == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(path, node), ": unknown table [", name, "]", DidYouMean(name, known)));
    }
    if (!node.is_table()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(path, node), ": ", name, " must be a table, found ", TypeName(node)));
    }
    if (auto s = ReadSection(path, name, *node.as_table(), section->second); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
