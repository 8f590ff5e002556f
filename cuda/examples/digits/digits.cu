// A network of two layers: 64 pixels, 128 rectifiers, 10 digits. `digits.ptx` is compiled from this file by `ptx.py`,
// two folders up.

#define PIXELS 64
#define HIDDEN 128
#define DIGITS 10

// The weights from each input to all outputs, then the biases.
struct Net {
    float hidden[PIXELS][HIDDEN], hidden_bias[HIDDEN];
    float output[HIDDEN][DIGITS], output_bias[DIGITS];
};

// The values of one sample that a training step keeps.
struct Trace {
    float pixels[PIXELS];
    float active[HIDDEN];  // the output of the hidden layer
    float back[HIDDEN];    // the gradient of the loss with respect to the hidden layer's input
    float wrong[DIGITS];   // the gradient of the loss with respect to the softmax's input
};

// Sums over an epoch.
struct Score {
    float loss;
    unsigned int correct;
};

// Runs the network on a batch: one block for each sample, with one thread for each rectifier.
extern "C" __global__ void run(const unsigned char* images, const long long* labels, const Net* net, Trace* traces,
                               Score* score) {
    Trace* trace = traces + blockIdx.x;
    int label = labels[blockIdx.x], unit = threadIdx.x;
    __shared__ float logits[DIGITS];
    if (unit < PIXELS) trace->pixels[unit] = images[blockIdx.x * PIXELS + unit] / 16.0f;
    __syncthreads();

    float sum = net->hidden_bias[unit];
    for (int i = 0; i < PIXELS; i++) sum += trace->pixels[i] * net->hidden[i][unit];
    trace->active[unit] = fmaxf(sum, 0.0f);
    __syncthreads();

    if (unit < DIGITS) {
        float logit = net->output_bias[unit];
        for (int i = 0; i < HIDDEN; i++) logit += trace->active[i] * net->output[i][unit];
        logits[unit] = logit;
    }
    __syncthreads();

    int guess = 0;
    for (int k = 1; k < DIGITS; k++) guess = logits[k] > logits[guess] ? k : guess;
    float powers = 0.0f;
    for (int k = 0; k < DIGITS; k++) powers += expf(logits[k] - logits[guess]);
    if (unit < DIGITS) trace->wrong[unit] = expf(logits[unit] - logits[guess]) / powers - (unit == label ? 1.0f : 0.0f);
    if (unit == 0) {
        atomicAdd(&score->loss, logf(powers) - (logits[label] - logits[guess]));
        atomicAdd(&score->correct, guess == label ? 1 : 0);
    }
    __syncthreads();

    float back = 0.0f;
    for (int k = 0; k < DIGITS; k++) back += net->output[unit][k] * trace->wrong[k];
    trace->back[unit] = trace->active[unit] > 0.0f ? back : 0.0f;
}

// The gradient of one weight: the sum over the samples of the input (1 for a bias) times the gradient of the output.
__device__ float gradient(int weight, const Trace* traces, int samples) {
    bool last = weight >= (PIXELS + 1) * HIDDEN;
    int at = last ? weight - (PIXELS + 1) * HIDDEN : weight, outputs = last ? DIGITS : HIDDEN;
    int from = at / outputs, to = at % outputs, inputs = last ? HIDDEN : PIXELS;
    float sum = 0.0f;
    for (const Trace* trace = traces; trace < traces + samples; trace++) {
        const float *in = last ? trace->active : trace->pixels, *out = last ? trace->wrong : trace->back;
        sum += (from < inputs ? in[from] : 1.0f) * out[to];
    }
    return sum;
}

// A step of gradient descent with momentum: one thread for each weight.
extern "C" __global__ void descend(float* net, float* velocity, const Trace* traces, int samples, float rate) {
    int weight = blockIdx.x * blockDim.x + threadIdx.x;
    if (weight >= sizeof(Net) / sizeof(float)) return;
    velocity[weight] = 0.9f * velocity[weight] - rate / samples * gradient(weight, traces, samples);
    net[weight] += velocity[weight];
}
