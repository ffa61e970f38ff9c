#include "server/settings/alert_config_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::server {
namespace {

keys::Setter LevelOf(v1::Level* out) {
  return [out](const toml::node& node) -> std::string {
    const auto word = node.value<std::string>();
    for (const v1::Level level : {v1::LEVEL_NOTE, v1::LEVEL_WARNING, v1::LEVEL_ERROR}) {
      if (word != analysis::LevelName(level)) continue;
      *out = level;
      return "";
    }
    return "note, warning or error";
  };
}

keys::Section RouteKeys(AlertRoute* r) {
  return {{"name", keys::Text(&r->name)},
          {"level", LevelOf(&r->level)},
          {"rules", keys::Texts(&r->rules)},
          {"runs", keys::Texts(&r->runs)},
          {"alertmanager", keys::Text(&r->alertmanager)},
          {"webhook", keys::Text(&r->webhook)},
          {"command", keys::Texts(&r->command)},
          {"secret_file", keys::Text(&r->secret_file)},
          {"token_file", keys::Text(&r->token_file)},
          {"ca_file", keys::Text(&r->ca_file)},
          {"resolved", keys::Flag(&r->resolved)},
          {"timeout_seconds", keys::Number(&r->timeout_seconds)},
          {"retry_hours", keys::Number(&r->retry_hours)},
          {"most_a_minute", keys::Integer(&r->most_a_minute)},
          {"resend_seconds", keys::Number(&r->resend_seconds)},
          {"raw_ids", keys::Flag(&r->raw_ids)}};
}

}  // namespace

keys::Section AlertKeys(AlertConfig* out) {
  return {{"page", keys::Text(&out->page)},
          {"gather_seconds", keys::Number(&out->gather_seconds)},
          {"gather_most_seconds", keys::Number(&out->gather_most_seconds)},
          {"route", [](const toml::node& node) -> std::string {
             const toml::array* array = node.as_array();
             const bool tables =
                 array != nullptr && (array->empty() || array->is_array_of_tables());
             return tables ? "" : "tables [[alerts.route]]";
           }}};
}

std::vector<std::string> AlertRouteKeys() {
  AlertRoute unused;
  return keys::NamesOf(RouteKeys(&unused));
}

void ReadAlertRoutes(const std::string& file, const toml::table& table, AlertConfig* out,
                     ConfigMistakes* mistakes) {
  out->routes.clear();
  const toml::array* array = table["route"].as_array();
  if (array == nullptr) return;
  for (const toml::node& node : *array) {
    if (!node.is_table()) return;  // already reported
    const std::string key = absl::StrCat("alerts.route[", out->routes.size(), "]");
    mistakes->Stands(key, file, node.source().begin.line);
    AlertRoute route;
    keys::ReadSection(file, key, *node.as_table(), RouteKeys(&route), mistakes);
    out->routes.push_back(std::move(route));
  }
}

}  // namespace plumbline::server
