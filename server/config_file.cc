#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/toml_words.h"
#include "server/alerts/alert_config_file.h"
#include "server/config.h"
#include "server/config_reader.h"

namespace plumbline::server {
namespace {

using keys::Flag;
using keys::Integer;
using keys::Number;
using keys::Section;
using keys::Text;
using keys::Texts;
using keys::Where;
using Sections = std::map<std::string, Section, std::less<>>;

Sections KnownKeys(Config* c) {
  Sections s;
  s["listen"] = {{"grpc", Text(&c->grpc)},
                 {"http", Text(&c->http)},
                 {"insecure", Flag(&c->insecure)},
                 {"reflection", Flag(&c->reflection)}};
  s["data"] = {{"directory", Text(&c->data_directory)}};
  s["tls"] = {{"cert", Text(&c->tls_cert)},
              {"key", Text(&c->tls_key)},
              {"client_ca", Text(&c->tls_client_ca)}};
  s["relay"] = {{"upstream", Text(&c->relay_upstream)},
                {"tls_ca", Text(&c->relay_tls_ca)},
                {"tls_cert", Text(&c->relay_tls_cert)},
                {"tls_key", Text(&c->relay_tls_key)},
                {"token_file", Text(&c->relay_token_file)}};
  s["ingest"] = {{"grace_seconds", Number(&c->grace_seconds)},
                 {"ack_seconds", Number(&c->ack_seconds)},
                 {"ack_batches", Integer(&c->ack_batches)},
                 {"queue_bytes", Integer(&c->queue_bytes)},
                 {"message_bytes", Integer(&c->message_bytes)},
                 {"waiting_batches", Integer(&c->waiting_batches)},
                 {"waiting_bytes", Integer(&c->waiting_bytes)},
                 {"max_streams", Integer(&c->max_streams)},
                 {"max_name_bytes", Integer(&c->max_name_bytes)},
                 {"max_series", Integer(&c->max_series)},
                 {"max_runs", Integer(&c->max_runs)},
                 {"hello_seconds", Number(&c->hello_seconds)}};
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
  s["capsules"] = {
      {"take", Text(&c->capsule_take)},          {"rank_bytes", Integer(&c->capsule_rank_bytes)},
      {"bytes", Integer(&c->capsule_bytes)},     {"ranks", Integer(&c->capsule_ranks)},
      {"per_run", Integer(&c->capsule_per_run)}, {"dense_steps", Integer(&c->capsule_dense_steps)}};
  s["liveness"] = {{"hang_seconds", Number(&c->hang_seconds)}};
  s["suppressions"] = {{"file", Text(&c->suppressions_file)}};
  s["rules"] = {{"run", Texts(&c->rules)},
                {"set", Texts(&c->settings)},
                {"window_steps", Integer(&c->window_steps)}};
  s["alerts"] = AlertKeys(&c->alerts);
  s["log"] = {{"level", Text(&c->log_level)}};
  return s;
}

Section KeysOf(AccessEntry* entry) {
  return {{"name", Text(&entry->name)},
          {"san", Text(&entry->san)},
          {"token_file", Text(&entry->token_file)},
          {"scopes", Texts(&entry->scopes)},
          {"runs", Texts(&entry->runs)}};
}

// Tables that may be there many times; each call of their function begins another one.
using RepeatedTables = std::map<std::string, std::function<Section()>, std::less<>>;
RepeatedTables KnownRepeated(Config* c) {
  return {{"access", [c] { return KeysOf(&c->access.emplace_back()); }}};
}

absl::Status ReadRepeated(const std::string& path, const std::string& name, const toml::node& node,
                          const std::function<Section()>& add) {
  const toml::array* array = node.as_array();
  if (array == nullptr || !array->is_array_of_tables()) {
    return absl::InvalidArgumentError(absl::StrCat(Where(path, node), ": ", name,
                                                   " must be tables [[", name, "]], found ",
                                                   TomlTypeName(node)));
  }
  for (const toml::node& element : *array) {
    const Section section = add();
    if (auto s = keys::ReadSection(path, name, *element.as_table(), section); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ConfigKeys() {
  Config unused;
  std::vector<std::string> all;
  for (const auto& [table, section] : KnownKeys(&unused)) {
    for (const auto& [key, setter] : section) all.push_back(absl::StrCat(table, ".", key));
  }
  for (const std::string& key : AlertRouteKeys()) all.push_back("alerts.route." + key);
  for (const auto& [table, add] : KnownRepeated(&unused)) {
    for (const auto& [key, setter] : add()) all.push_back(absl::StrCat(table, ".", key));
  }
  return all;
}

absl::Status LoadConfigFile(const std::string& path, Config* config) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", e.source().begin.line, ": ", std::string(e.description())));
  }
  const Sections known = KnownKeys(config);
  const auto repeated = KnownRepeated(config);
  std::vector<std::string> names = keys::NamesOf(known);
  for (const auto& [name, add] : repeated) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (const auto tables = repeated.find(name); tables != repeated.end()) {
      if (auto s = ReadRepeated(path, name, node, tables->second); !s.ok()) return s;
      continue;
    }
    const auto section = known.find(name);
    if (section == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(Where(path, node), ": unknown table [", name,
                                                     "]", keys::MeantOrKnown(name, names)));
    }
    if (!node.is_table()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Where(path, node), ": ", name, " must be a table, found ", TomlTypeName(node)));
    }
    if (auto s = keys::ReadSection(path, name, *node.as_table(), section->second); !s.ok())
      return s;
    if (name != "alerts") continue;
    if (auto s = ReadAlertRoutes(path, *node.as_table(), &config->alerts); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
