#include "audit/live/watch_printer.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"

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
    default:
      return "unspecified";
  }
}

const char* StateName(v1::Incident::State state) {
  switch (state) {
    case v1::Incident::STATE_OPEN:
      return "open";
    case v1::Incident::STATE_ACKNOWLEDGED:
      return "acknowledged";
    case v1::Incident::STATE_SILENCED:
      return "silenced";
    case v1::Incident::STATE_RESOLVED:
      return "resolved";
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

// RFC 3339 with milliseconds.
std::string Rfc3339(int64_t unix_ns) {
  std::string millis = std::to_string(unix_ns / 1'000'000 % 1000);
  millis.insert(0, 3 - millis.size(), '0');
  return FormatTime("%Y-%m-%dT%H:%M:%S", unix_ns, true) + "." + millis + "Z";
}

std::string Times(uint64_t count) { return count == 1 ? "once" : absl::StrCat(count, " times"); }

}  // namespace

std::string TimeText(int64_t unix_ns) { return FormatTime("%Y-%m-%d %H:%M:%S", unix_ns, false); }

std::string IncidentJson(const v1::Incident& incident) {
  return absl::StrCat("{\"id\":", incident.id(), ",\"state\":\"", StateName(incident.state()),
                      "\",\"count\":", incident.count(), ",\"opened\":\"",
                      Rfc3339(incident.opened_unix_ns()), "\",\"updated\":\"",
                      Rfc3339(incident.updated_unix_ns()),
                      "\",\"finding\":", FindingJson(incident.finding()), "}");
}

std::string EventJson(const v1::IncidentEvent& event) {
  std::string line = absl::StrCat("{\"event\":\"", KindName(event.kind()), "\"");
  if (event.missed() > 0) absl::StrAppend(&line, ",\"missed\":", event.missed());
  if (event.has_incident())
    absl::StrAppend(&line, ",\"incident\":", IncidentJson(event.incident()));
  return line + "}\n";
}

std::string WatchPrinter::Headline(const std::string& what, int64_t unix_ns) const {
  return Inked(style_, Ink::kDim, TimeText(unix_ns) + "  " + what) + "\n";
}

std::string WatchPrinter::Event(const v1::IncidentEvent& event) {
  if (format_ == Format::kJson) return EventJson(event);
  return event.has_incident() ? Text(event) : "";
}

std::string WatchPrinter::Text(const v1::IncidentEvent& event) {
  const v1::Incident& incident = event.incident();
  const v1::Finding& finding = incident.finding();
  const std::string name = absl::StrCat("incident ", incident.id());
  Shown& shown = shown_[finding.fingerprint()];
  const Shown before = shown;
  // After a break in the connection the same incidents exist again; after a restart of the server
  // they are new ones.
  const bool known = before.count > 0 && before.opened_unix_ns == incident.opened_unix_ns();
  const bool stronger = finding.level() > before.level || finding.strength() > before.strength;
  const bool changed = stronger || finding.cause().id() != before.cause;
  const auto remember = [&] {
    shown = {finding.level(), finding.strength(), finding.cause().id(), incident.count(),
             incident.opened_unix_ns()};
  };
  if (event.kind() == v1::IncidentEvent::KIND_RESOLVED) {
    shown_.erase(finding.fingerprint());
    return Headline(absl::StrCat(name, " resolved: ", Printable(finding.rule()), ", ",
                                 SiteText(finding.site())),
                    incident.updated_unix_ns());
  }
  if (!known) {
    remember();
    const bool existing = event.kind() != v1::IncidentEvent::KIND_OPENED;
    const std::string what =
        existing ? absl::StrCat(name, ", open since then, seen ", Times(incident.count()))
                 : absl::StrCat(name, " opened");
    return Headline(what, incident.opened_unix_ns()) + RenderFinding(finding, style_) + "\n";
  }
  if (changed) {
    remember();
    return Headline(absl::StrCat(name, stronger ? " is now stronger" : " has another cause"),
                    incident.updated_unix_ns()) +
           RenderFinding(finding, style_) + "\n";
  }
  if (incident.count() < 10 * before.count) return "";
  remember();
  return Headline(absl::StrCat(name, " goes on: seen ", Times(incident.count()), ", ",
                               Printable(finding.rule()), ", ", SiteText(finding.site())),
                  incident.updated_unix_ns());
}

}  // namespace plumbline::audit
