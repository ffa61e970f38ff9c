// What loggers and collectors put around a line of a trainer.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// The line within a JSON object that a collector writes for each one: docker's `log`, CloudWatch's
// `message`, journald's `MESSAGE`, Loki's `line`, structlog's `event`; fluentd's, with a time and a
// tag before the object. Unescaped into *scratch. Empty: it is no such object.
std::string_view LineInJson(std::string_view line, std::string* scratch);

// "(TrainWorker pid=12, ip=10.0.0.2) step 10 loss 2.5" of ray: the line without it.
std::string_view WithoutActor(std::string_view line);

// "step 10 loss 2.5      train.py:52" (rich's handler): the line without its source; *had: it had
// one.
std::string_view WithoutSource(std::string_view line, bool* had);

// The line with '|' for the vertical rules of boxes that rich and others draw; into *scratch where
// there are any.
std::string_view WithBars(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
