// Exports alerts as metrics.
#include "server/metrics/server_metrics.h"

namespace plumbline::server {

void AddAlerts(const AlertCenter& alerts, double unix_s, MetricFamilies* out) {
  for (const AlertCenter::Route& route : alerts.Routes()) {
    const MetricFamilies::Labels labels = {{"route", route.name}, {"sink", SinkWord(route.sink)}};
    const AlertCounts& c = *route.counts;
    const auto delivered = static_cast<double>(c.delivered);
    out->Counter("plumbline_alerts_delivered_total", "Notifications delivered.", delivered, labels);
    out->Counter("plumbline_alert_failed_tries_total",
                 "Failed delivery attempts; a notification may have many attempts.",
                 static_cast<double>(c.failed_tries), labels);
    out->Counter("plumbline_alerts_given_up_total",
                 "Notifications that the receiver refused, or that became too old.",
                 static_cast<double>(c.given_up), labels);
    out->Counter("plumbline_alerts_held_back_total",
                 "Notifications above the route's limit, which were sent as a summary.",
                 static_cast<double>(c.held_back), labels);
    out->Counter("plumbline_alert_log_failures_total",
                 "Failed reads and writes of the log of alerts.",
                 static_cast<double>(c.log_failures), labels);
    out->Gauge("plumbline_alerts_waiting", "Notifications that wait for delivery.",
               static_cast<double>(route.waiting.count), labels);
    const double oldest = route.waiting.count == 0
                              ? 0
                              : unix_s - static_cast<double>(route.waiting.oldest_unix_ns) / 1e9;
    out->Gauge("plumbline_alerts_oldest_waiting_seconds",
               "Age of the oldest notification that waits for delivery; 0: none waits.", oldest,
               labels);
    const std::vector<double> bounds(AlertCounts::kSeconds.begin(), AlertCounts::kSeconds.end());
    const std::vector<uint64_t> within(c.within.begin(), c.within.end());
    out->Histogram("plumbline_alert_delivery_seconds",
                   "Time from the decision to notify to the delivery.", bounds, within, c.delivered,
                   static_cast<double>(c.total_ms) / 1e3, labels);
  }
}

}  // namespace plumbline::server
