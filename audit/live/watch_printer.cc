#include "audit/live/watch_printer.h"

#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "audit/live/output.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "rules/causes.h"
#include "rules/words/words.h"

namespace plumbline::audit {
namespace {

const char* KindName(v1::IncidentEvent::Kind kind) {
  switch (kind) {
    case v1::IncidentEvent::KIND_EXISTING:
      return "existing";
    case v1::IncidentEvent::KIND_OPENED:
      return "opened";
    case v1::IncidentEvent::KIND_UPDATED:
      return "updated";
    case v1::IncidentEvent::KIND_RESOLVED:
      return "resolved";
    case v1::IncidentEvent::KIND_CAUGHT_UP:
      return "caught-up";
    case v1::IncidentEvent::KIND_MERGED:
      return "merged";
    case v1::IncidentEvent::KIND_LEFT:
      return "left";
    default:
      return "unspecified";
  }
}

std::string FormatTime(const char* format, int64_t unix_ns, bool utc) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm parts{};
  utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof(text), format, &parts));
}

// Returns a note on the state of an incident that is not open.
std::string StateNote(const v1::IncidentEvent& event) {
  if (event.incident().state() == v1::Incident::STATE_OPEN) return "";
  return absl::StrCat("; ", rules::StateName(event.incident().state()),
                      StatusText(event.incident(), event.status()));
}

std::string Times(uint64_t count) { return count == 1 ? "once" : absl::StrCat(count, " times"); }

}  // namespace

std::string TimeText(int64_t unix_ns) { return FormatTime("%Y-%m-%d %H:%M:%S", unix_ns, false); }

const std::string& FingerprintOf(const v1::Incident& incident, const v1::IncidentStatus& status) {
  return status.fingerprint().empty() ? incident.finding().fingerprint() : status.fingerprint();
}

IncidentSites SitesOf(const v1::IncidentStatus& status) {
  IncidentSites sites{status.site_count(), {}, status.fingerprint()};
  for (const v1::IncidentSite& site : status.sites()) {
    v1::FindingSite text;
    text.set_layer(site.layer());
    text.set_op(site.op());
    text.set_step_first(site.step_first());
    text.set_step_last(site.step_last());
    sites.named.push_back(SiteText(text));
  }
  return sites;
}

std::string Rfc3339(int64_t unix_ns) {
  std::string millis = std::to_string(unix_ns / 1'000'000 % 1000);
  millis.insert(0, 3 - millis.size(), '0');
  return FormatTime("%Y-%m-%dT%H:%M:%S", unix_ns, true) + "." + millis + "Z";
}

std::string StatusText(const v1::Incident& incident, const v1::IncidentStatus& status) {
  std::string text;
  if (!status.who().empty())
    absl::StrAppend(&text, " by ", Printable(status.who()), ": ", Printable(status.reason()));
  if (incident.state() != v1::Incident::STATE_SILENCED) return text;
  if (status.has_silenced_until_step())
    absl::StrAppend(&text, ", until step ", status.silenced_until_step());
  if (status.has_silenced_until_unix_ns())
    absl::StrAppend(&text, ", until ", TimeText(status.silenced_until_unix_ns()));
  return text;
}

std::string IncidentJson(const v1::Incident& incident, const v1::IncidentStatus& status) {
  std::string json =
      absl::StrCat("{\"id\":", incident.id(), ",\"state\":\"", rules::StateName(incident.state()),
                   "\",\"count\":", incident.count(),
                   ",\"fingerprint\":", JsonString(FingerprintOf(incident, status)),
                   ",\"cause\":", JsonString(status.cause()), ",\"sites\":", status.site_count(),
                   ",\"opened\":\"", Rfc3339(incident.opened_unix_ns()), "\",\"updated\":\"",
                   Rfc3339(incident.updated_unix_ns()), "\"");
  if (!status.who().empty()) {
    absl::StrAppend(&json, ",\"who\":", JsonString(status.who()),
                    ",\"reason\":", JsonString(status.reason()));
  }
  if (status.has_silenced_until_step())
    absl::StrAppend(&json, ",\"silenced_until_step\":", status.silenced_until_step());
  if (status.has_silenced_until_unix_ns()) {
    absl::StrAppend(&json, ",\"silenced_until\":\"", Rfc3339(status.silenced_until_unix_ns()),
                    "\"");
  }
  if (!status.merged_into().empty())
    absl::StrAppend(&json, ",\"merged_into\":", JsonString(status.merged_into()));
  json += ",\"findings\":[";
  for (int i = 0; i < status.sites_size(); ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", JsonString(status.sites(i).fingerprint()));
  }
  return absl::StrCat(json, "],\"finding\":", FindingJson(incident.finding()), "}");
}

std::string EventJson(const v1::IncidentEvent& event, const std::string& symptom_of) {
  std::string line = absl::StrCat("{\"event\":\"", KindName(event.kind()), "\"");
  if (event.missed() > 0) absl::StrAppend(&line, ",\"missed\":", event.missed());
  if (!symptom_of.empty()) absl::StrAppend(&line, ",\"symptom_of\":", JsonString(symptom_of));
  if (event.has_incident())
    absl::StrAppend(&line, ",\"incident\":", IncidentJson(event.incident(), event.status()));
  return line + "}\n";
}

std::string WatchPrinter::Headline(const std::string& what, int64_t unix_ns) const {
  return Inked(style_, Ink::kDim, TimeText(unix_ns) + "  " + what) + "\n";
}

// Returns true if the incident was printed at this revision. The opening time must be equal,
// because a server that lost its incidents numbers new ones from the start.
bool WatchPrinter::Repeated(const v1::IncidentEvent& event) {
  if (!event.has_incident() || event.status().revision() == 0) return false;
  Seen& seen = seen_[FingerprintOf(event.incident(), event.status())];
  const bool repeated = seen.opened_unix_ns == event.incident().opened_unix_ns() &&
                        seen.revision >= event.status().revision();
  if (!repeated) seen = {event.incident().opened_unix_ns(), event.status().revision()};
  return repeated;
}

// If the deletion of the run is undone, the incident is printed again.
std::string WatchPrinter::Left(const v1::IncidentEvent& event) {
  const v1::Incident& incident = event.incident();
  const std::string& fingerprint = FingerprintOf(incident, event.status());
  seen_.erase(fingerprint);
  shown_.erase(fingerprint);
  if (format_ == Format::kJson) return EventJson(event);
  return Headline(absl::StrCat("incident ", incident.id(), " left: its run was deleted (",
                               Printable(incident.finding().rule()), ", ",
                               SiteText(incident.finding().site()), ")"),
                  incident.updated_unix_ns());
}

void WatchPrinter::Keep(const v1::IncidentEvent& event) {
  if (!event.has_incident()) return;
  const std::string& fingerprint = FingerprintOf(event.incident(), event.status());
  if (event.kind() == v1::IncidentEvent::KIND_RESOLVED ||
      event.kind() == v1::IncidentEvent::KIND_MERGED ||
      event.kind() == v1::IncidentEvent::KIND_LEFT) {
    kept_.erase(fingerprint);
    return;
  }
  kept_[fingerprint] = {event.incident().id(), event.incident().state() == v1::Incident::STATE_OPEN,
                        event.incident().finding()};
}

WatchPrinter::Kin WatchPrinter::KinOf(const std::string& fingerprint) const {
  Kin kin;
  const auto self = kept_.find(fingerprint);
  if (self == kept_.end()) return kin;
  std::vector<const std::string*> names;
  std::vector<const v1::Finding*> of_run;
  size_t at = 0;
  for (const auto& [name, kept] : kept_) {
    if (kept.finding.site().run() != self->second.finding.site().run()) continue;
    if (name == fingerprint) at = names.size();
    names.push_back(&name);
    of_run.push_back(&kept.finding);
  }
  const std::vector<size_t> roots = rules::RootsOf(of_run);
  if (roots[at] != at) kin.root = *names[roots[at]];
  for (size_t i = 0; i < roots.size(); ++i) {
    if (i != at && roots[i] == at) kin.symptoms.push_back(SymptomText(*of_run[i]));
  }
  return kin;
}

size_t WatchPrinter::Open() const {
  std::vector<const v1::Finding*> open;
  for (const auto& [name, kept] : kept_) {
    if (kept.open) open.push_back(&kept.finding);
  }
  const std::vector<size_t> roots = rules::RootsOf(open);
  size_t count = 0;
  for (size_t i = 0; i < roots.size(); ++i) count += roots[i] == i ? 1 : 0;
  return count;
}

std::string WatchPrinter::Event(const v1::IncidentEvent& event) {
  if (event.kind() == v1::IncidentEvent::KIND_EXISTING) {
    Keep(event);
    existing_.push_back(event);
    return "";
  }
  const std::string existing = Existing();
  Keep(event);
  return existing + Now(event);
}

std::string WatchPrinter::Existing() {
  const std::vector<v1::IncidentEvent> events = std::move(existing_);
  existing_.clear();
  std::map<std::string, std::vector<const v1::IncidentEvent*>> symptoms;  // by their root
  std::vector<const v1::IncidentEvent*> roots;
  for (const v1::IncidentEvent& event : events) {
    const std::string root = KinOf(FingerprintOf(event.incident(), event.status())).root;
    (root.empty() ? roots : symptoms[root]).push_back(&event);
  }
  std::string text;
  for (const v1::IncidentEvent* root : roots) {
    absl::StrAppend(&text, Now(*root));
    const auto of_root = symptoms.extract(FingerprintOf(root->incident(), root->status()));
    if (of_root.empty()) continue;
    for (const v1::IncidentEvent* symptom : of_root.mapped()) absl::StrAppend(&text, Now(*symptom));
  }
  // Symptoms of an incident that was printed before.
  for (const auto& [root, others] : symptoms) {
    for (const v1::IncidentEvent* symptom : others) absl::StrAppend(&text, Now(*symptom));
  }
  return text;
}

std::string WatchPrinter::Now(const v1::IncidentEvent& event) {
  if (event.kind() == v1::IncidentEvent::KIND_LEFT) return Left(event);
  if (Repeated(event)) return "";
  if (format_ == Format::kJson) {
    return EventJson(event, event.has_incident()
                                ? KinOf(FingerprintOf(event.incident(), event.status())).root
                                : "");
  }
  return event.has_incident() ? Text(event) : "";
}

std::string WatchPrinter::Block(const v1::IncidentEvent& event) const {
  const v1::Finding& finding = event.incident().finding();
  Kin kin = KinOf(FingerprintOf(event.incident(), event.status()));
  if (!kin.root.empty()) {
    return Inked(style_, Ink::kDim,
                 absl::StrCat("a symptom of incident ", kept_.at(kin.root).id, ": ",
                              Printable(SymptomText(finding)))) +
           "\n";
  }
  IncidentSites sites = SitesOf(event.status());
  sites.symptoms = std::move(kin.symptoms);
  return RenderIncident(finding, sites, style_);
}

std::string WatchPrinter::Text(const v1::IncidentEvent& event) {
  const v1::Incident& incident = event.incident();
  const v1::Finding& finding = incident.finding();
  const std::string& fingerprint = FingerprintOf(incident, event.status());
  const std::string name = absl::StrCat("incident ", incident.id());
  Shown& shown = shown_[fingerprint];
  const Shown before = shown;
  // After a broken connection the same incidents are sent again. After a restart of the server they
  // are new ones.
  const bool known = before.count > 0 && before.opened_unix_ns == incident.opened_unix_ns();
  const bool stronger = finding.level() > before.level || finding.strength() > before.strength;
  const bool changed = stronger || finding.cause().id() != before.cause;
  const auto remember = [&] {
    shown = {
        finding.level(),           finding.strength(), finding.cause().id(),       incident.count(),
        incident.opened_unix_ns(), incident.state(),   event.status().site_count()};
  };
  if (event.kind() == v1::IncidentEvent::KIND_RESOLVED) {
    shown_.erase(fingerprint);
    return Headline(absl::StrCat(name, " resolved: ", Printable(finding.rule()), ", ",
                                 SiteText(finding.site())),
                    incident.updated_unix_ns());
  }
  if (event.kind() == v1::IncidentEvent::KIND_MERGED) {
    shown_.erase(fingerprint);
    if (!known) return "";
    return Headline(absl::StrCat(name, " is merged into ", Printable(event.status().merged_into()),
                                 ": the cause of its findings is now known better"),
                    incident.updated_unix_ns());
  }
  if (!known) {
    remember();
    const bool existing = event.kind() != v1::IncidentEvent::KIND_OPENED;
    const std::string what = existing ? absl::StrCat(name, ", open since then, seen ",
                                                     Times(incident.count()), StateNote(event))
                                      : absl::StrCat(name, " opened");
    return Headline(what, incident.opened_unix_ns()) + Block(event) + "\n";
  }
  if (changed) {
    remember();
    return Headline(absl::StrCat(name, stronger ? " has a higher level or strength now"
                                                : " has a different cause now"),
                    incident.updated_unix_ns()) +
           Block(event) + "\n";
  }
  if (incident.state() != before.state) {
    remember();
    return Headline(absl::StrCat(name, " is ", rules::StateName(incident.state()),
                                 StatusText(incident, event.status()), " (",
                                 Printable(finding.rule()), ", ", SiteText(finding.site()), ")"),
                    incident.updated_unix_ns());
  }
  if (event.status().site_count() >= 2 * std::max<uint64_t>(before.sites, 1)) {
    remember();
    std::string newest;
    if (event.status().has_newest()) {
      const v1::IncidentSite& site = event.status().newest();
      newest =
          absl::StrCat(", last found at ", Printable(site.layer()),
                       site.layer().empty() || site.op().empty() ? "" : " ", Printable(site.op()));
    }
    return Headline(absl::StrCat(name, " is at ", event.status().site_count(), " sites now (",
                                 Printable(finding.rule()), newest, ")"),
                    incident.updated_unix_ns());
  }
  if (incident.count() < 10 * before.count) return "";
  remember();
  return Headline(absl::StrCat(name, " continues: seen ", Times(incident.count()), ", ",
                               Printable(finding.rule()), ", ", SiteText(finding.site())),
                  incident.updated_unix_ns());
}

}  // namespace plumbline::audit
