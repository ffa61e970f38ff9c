#include "audit/mcp/resources.h"

#include "absl/strings/str_cat.h"
#include "audit/mcp/tools.h"
#include "rules/catalogue.h"

namespace plumbline::audit::mcp {
namespace {

constexpr char kRulePages[] = "plumbline://rules/";
constexpr const char* kPageType = "text/markdown";

Json PageResource(const char* id, const std::string& title) {
  Json resource;
  resource["uri"] = absl::StrCat(kRulePages, id);
  resource["name"] = id;
  resource["title"] = title;
  resource["description"] = absl::StrCat("Page of the rule ", id, ": what it checks, why, fixes");
  resource["mimeType"] = kPageType;
  return resource;
}

}  // namespace

Json ResourceList() {
  Json list;
  list["resources"] = Json::array();
  for (const rules::CatalogueEntry& entry : rules::Catalogue())
    list["resources"].push_back(PageResource(entry.info->id, entry.info->title));
  return list;
}

Json ResourceTemplates() {
  Json page;
  page["uriTemplate"] = absl::StrCat(kRulePages, "{group}/{name}");
  page["name"] = "rule";
  page["title"] = "A rule's page";
  page["description"] = "What the rule checks, why, an example that fails, how to fix it";
  page["mimeType"] = kPageType;
  Json list;
  list["resourceTemplates"] = Json::array({page});
  return list;
}

absl::StatusOr<Json> ReadResource(const std::string& uri) {
  if (uri.rfind(kRulePages, 0) != 0) {
    return absl::NotFoundError(
        absl::StrCat("expected ", kRulePages, "GROUP/NAME; resources/list lists them"));
  }
  absl::StatusOr<Json> rule = RuleValue(uri.substr(std::string_view(kRulePages).size()));
  if (!rule.ok()) return rule.status();
  Json page;
  page["uri"] = uri;
  page["mimeType"] = kPageType;
  page["text"] = (*rule)["page"];
  Json contents;
  contents["contents"] = Json::array({page});
  return contents;
}

}  // namespace plumbline::audit::mcp
