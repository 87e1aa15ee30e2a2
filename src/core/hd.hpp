// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks functions that run on the host and on CUDA devices.
#ifdef __CUDACC__
#define FEWBIT_HD __host__ __device__
#else
#define FEWBIT_HD
#endif
