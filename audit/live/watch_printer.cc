#include "audit/live/watch_printer.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "audit/live/output.h"
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

std::string FormatTime(const char* format, int64_t unix_ns, bool utc) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm parts{};
  utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof(text), format, &parts));
}

// Of an incident that is not just open.
std::string StateNote(const v1::IncidentEvent& event) {
  if (event.incident().state() == v1::Incident::STATE_OPEN) return "";
  return absl::StrCat("; ", StateName(event.incident().state()),
                      StatusText(event.incident(), event.status()));
}

std::string Times(uint64_t count) { return count == 1 ? "once" : absl::StrCat(count, " times"); }

}  // namespace

std::string TimeText(int64_t unix_ns) { return FormatTime("%Y-%m-%d %H:%M:%S", unix_ns, false); }

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
  std::string json = absl::StrCat("{\"id\":", incident.id(), ",\"state\":\"",
                                  StateName(incident.state()), "\",\"count\":", incident.count(),
                                  ",\"opened\":\"", Rfc3339(incident.opened_unix_ns()),
                                  "\",\"updated\":\"", Rfc3339(incident.updated_unix_ns()), "\"");
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
  return absl::StrCat(json, ",\"finding\":", FindingJson(incident.finding()), "}");
}

std::string EventJson(const v1::IncidentEvent& event) {
  std::string line = absl::StrCat("{\"event\":\"", KindName(event.kind()), "\"");
  if (event.missed() > 0) absl::StrAppend(&line, ",\"missed\":", event.missed());
  if (event.has_incident())
    absl::StrAppend(&line, ",\"incident\":", IncidentJson(event.incident(), event.status()));
  return line + "}\n";
}

std::string WatchPrinter::Headline(const std::string& what, int64_t unix_ns) const {
  return Inked(style_, Ink::kDim, TimeText(unix_ns) + "  " + what) + "\n";
}

// The same incident at the same revision: opened at the same time, so that one of a server that
// lost its incidents is another one.
bool WatchPrinter::Repeated(const v1::IncidentEvent& event) {
  if (!event.has_incident() || event.status().revision() == 0) return false;
  Seen& seen = seen_[event.incident().finding().fingerprint()];
  const bool repeated = seen.opened_unix_ns == event.incident().opened_unix_ns() &&
                        seen.revision >= event.status().revision();
  if (!repeated) seen = {event.incident().opened_unix_ns(), event.status().revision()};
  return repeated;
}

std::string WatchPrinter::Event(const v1::IncidentEvent& event) {
  if (Repeated(event)) return "";
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
    shown = {finding.level(),  finding.strength(),        finding.cause().id(),
             incident.count(), incident.opened_unix_ns(), incident.state()};
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
    const std::string what = existing ? absl::StrCat(name, ", open since then, seen ",
                                                     Times(incident.count()), StateNote(event))
                                      : absl::StrCat(name, " opened");
    return Headline(what, incident.opened_unix_ns()) + RenderFinding(finding, style_) + "\n";
  }
  if (changed) {
    remember();
    return Headline(absl::StrCat(name, stronger ? " is now stronger" : " has another cause"),
                    incident.updated_unix_ns()) +
           RenderFinding(finding, style_) + "\n";
  }
  if (incident.state() != before.state) {
    remember();
    return Headline(absl::StrCat(name, " is ", StateName(incident.state()),
                                 StatusText(incident, event.status()), " (",
                                 Printable(finding.rule()), ", ", SiteText(finding.site()), ")"),
                    incident.updated_unix_ns());
  }
  if (incident.count() < 10 * before.count) return "";
  remember();
  return Headline(absl::StrCat(name, " goes on: seen ", Times(incident.count()), ", ",
                               Printable(finding.rule()), ", ", SiteText(finding.site())),
                  incident.updated_unix_ns());
}

}  // namespace plumbline::audit
