// The actions of a trainer process. There is one scenario per process, since a process loads the
// agent once.
#pragma once

// Runs the scenario and returns its exit status: 0, or 1 with the reason on standard error.
int RunScenario(const char* name);
