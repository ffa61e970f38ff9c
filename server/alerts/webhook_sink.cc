#include "server/alerts/webhook_sink.h"

#include <utility>

#include "server/alerts/http_client.h"
#include "server/alerts/signature.h"

namespace plumbline::server {
namespace {

class WebhookSink : public AlertSink {
 public:
  WebhookSink(const AlertRoute& route, UnixClock clock)
      : route_(route), clock_(std::move(clock)), http_(route, route.webhook) {}

  SendResult Send(const Notification& n) override {
    std::string secret;  // read each time, because it may be replaced while the server runs
    if (auto s = ReadSecret(route_.secret_file, 1, &secret); !s.ok())
      return {SendResult::Kind::kTryAgain, "secret_file " + std::string(s.message())};
    const std::string timestamp = std::to_string(clock_() / 1'000'000'000);
    return ResultOf(
        http_.Do("POST", "", n.body,
                 {{"Idempotency-Key", n.id},
                  {"X-Plumbline-Event", EventWord(n.event)},
                  {"X-Plumbline-Timestamp", timestamp},
                  {"X-Plumbline-Signature", WebhookSignature(secret, timestamp, n.body)}}));
  }

  void Cancel() override { http_.Cancel(); }

 private:
  const AlertRoute route_;
  const UnixClock clock_;
  AlertHttpClient http_;
};

}  // namespace

std::unique_ptr<AlertSink> MakeWebhookSink(const AlertRoute& route, UnixClock clock) {
  return std::make_unique<WebhookSink>(route, std::move(clock));
}

}  // namespace plumbline::server
