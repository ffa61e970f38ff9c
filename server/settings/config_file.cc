#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/files/whole_file.h"
#include "base/toml_words.h"
#include "server/settings/alert_config_file.h"
#include "server/settings/config.h"
#include "server/settings/config_reader.h"

namespace plumbline::server {
namespace {

using keys::Flag;
using keys::Integer;
using keys::Number;
using keys::Section;
using keys::Text;
using keys::Texts;
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
              {"client_ca", Text(&c->tls_client_ca)},
              {"revoked", Text(&c->tls_revoked)}};
  s["relay"] = {{"upstream", Text(&c->relay_upstream)},
                {"tls_ca", Text(&c->relay_tls_ca)},
                {"tls_cert", Text(&c->relay_tls_cert)},
                {"tls_key", Text(&c->relay_tls_key)},
                {"token_file", Text(&c->relay_token_file)}};
  s["redact"] = {{"ids", Flag(&c->redact_ids)}, {"key_file", Text(&c->redact_key_file)}};
  s["ingest"] = {{"grace_seconds", Number(&c->grace_seconds)},
                 {"ack_seconds", Number(&c->ack_seconds)},
                 {"ack_batches", Integer(&c->ack_batches)},
                 {"queue_bytes", Integer(&c->queue_bytes)},
                 {"message_bytes", Integer(&c->message_bytes)},
                 {"waiting_batches", Integer(&c->waiting_batches)},
                 {"waiting_bytes", Integer(&c->waiting_bytes)},
                 {"max_streams", Integer(&c->max_streams)},
                 {"max_ranks", Integer(&c->max_ranks)},
                 {"max_name_bytes", Integer(&c->max_name_bytes)},
                 {"max_series", Integer(&c->max_series)},
                 {"max_runs", Integer(&c->max_runs)},
                 {"hello_seconds", Number(&c->hello_seconds)}};
  s["limits"] = {{"open_bytes", Integer(&c->open_bytes)},
                 {"name_bytes", Integer(&c->name_bytes)},
                 {"receive_bytes", Integer(&c->receive_bytes)}};
  s["journal"] = {{"sync", Text(&c->journal_sync)},
                  {"sync_seconds", Number(&c->journal_sync_seconds)},
                  {"commit_ms", Number(&c->journal_commit_ms)},
                  {"commit_bytes", Integer(&c->journal_commit_bytes)},
                  {"segment_bytes", Integer(&c->journal_segment_bytes)},
                  {"compress", Flag(&c->journal_compress)},
                  {"pack", Flag(&c->journal_pack)},
                  {"keep_days", Number(&c->journal_keep_days)},
                  {"keep_sample_days", Number(&c->journal_keep_sample_days)},
                  {"keep_bytes", Integer(&c->journal_keep_bytes)}};
  s["checkpoint"] = {{"bytes", Integer(&c->checkpoint_bytes)},
                     {"seconds", Number(&c->checkpoint_seconds)}};
  s["store"] = {{"bytes", Integer(&c->store_bytes)}, {"days", Number(&c->store_days)}};
  s["incidents"] = {{"quiet_steps", Integer(&c->quiet_steps)}};
  s["capsules"] = {
      {"take", Text(&c->capsule_take)},          {"rank_bytes", Integer(&c->capsule_rank_bytes)},
      {"bytes", Integer(&c->capsule_bytes)},     {"ranks", Integer(&c->capsule_ranks)},
      {"per_run", Integer(&c->capsule_per_run)}, {"dense_steps", Integer(&c->capsule_dense_steps)}};
  s["liveness"] = {{"hang_seconds", Number(&c->hang_seconds)},
                   {"between_steps_seconds", Number(&c->between_steps_seconds)}};
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
          {"runs", Texts(&entry->runs)},
          {"share", Number(&entry->share)}};
}

// Tables that may occur many times; each call of their function begins another one.
using RepeatedTables = std::map<std::string, std::function<Section()>, std::less<>>;
RepeatedTables KnownRepeated(Config* c) {
  return {{"access", [c] { return KeysOf(&c->access.emplace_back()); }}};
}

class FileReader {
 public:
  FileReader(const std::string& file, Config* config, ConfigMistakes* mistakes)
      : file_(file),
        config_(config),
        mistakes_(mistakes),
        known_(KnownKeys(config)),
        repeated_(KnownRepeated(config)) {}

  void Read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      mistakes_->Stands(name, file_, node.source().begin.line);
      if (const auto tables = repeated_.find(name); tables != repeated_.end()) {
        ReadRepeated(name, node, tables->second);
      } else if (const auto section = known_.find(name); section != known_.end()) {
        ReadTable(name, node, section->second);
      } else {
        mistakes_->Add(name, "unknown table" + keys::MeantOrKnown(name, Tables()));
      }
    }
  }

 private:
  void ReadTable(const std::string& name, const toml::node& node, const Section& section) {
    if (!node.is_table()) {
      mistakes_->Add(name, absl::StrCat("expected a table [", name, "], found ", TomlFound(node)));
      return;
    }
    keys::ReadSection(file_, name, *node.as_table(), section, mistakes_);
    if (name == "alerts") {
      ReadAlertRoutes(file_, *node.as_table(), &config_->alerts, mistakes_);
    }
  }

  void ReadRepeated(const std::string& name, const toml::node& node,
                    const std::function<Section()>& add) {
    const toml::array* array = node.as_array();
    if (array == nullptr || !array->is_array_of_tables()) {
      mistakes_->Add(name, absl::StrCat("expected tables [[", name, "]], found ", TomlFound(node)));
      return;
    }
    for (size_t i = 0; i < array->size(); ++i) {
      const toml::table& table = *(*array)[i].as_table();
      const std::string key = absl::StrCat(name, "[", i, "]");
      mistakes_->Stands(key, file_, table.source().begin.line);
      keys::ReadSection(file_, key, table, add(), mistakes_);
    }
  }

  std::vector<std::string> Tables() const {
    std::vector<std::string> names = keys::NamesOf(known_);
    for (const auto& [name, add] : repeated_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }

  const std::string& file_;
  Config* const config_;
  ConfigMistakes* const mistakes_;
  const Sections known_;
  const RepeatedTables repeated_;
};

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

absl::Status LoadConfigFile(const std::string& path, Config* config, ConfigMistakes* mistakes) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return text.status();
  try {
    FileReader(path, config, mistakes).Read(toml::parse(*text, path));
  } catch (const toml::parse_error& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", e.source().begin.line, ": ", std::string(e.description())));
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
