"""Small scripts that leak, each in one of the ways that real ones do, and scripts that do not.

`# HERE` marks the line that is to be named.
"""

KEPT_IN_A_LIST = """
import tensorflow as tf

weight = tf.Variable(tf.ones([64, 512]))

@tf.function
def train_step(x):
    y = tf.matmul(x, weight)
    weight.assign_sub(1e-3 * tf.matmul(x, y, transpose_a=True))
    return y

losses = []
for step in range(150):
    loss = train_step(tf.random.normal([32, 64]))
    losses.append(loss)  # HERE
"""

KEPT_IN_A_DICT = """
import keras
import tensorflow as tf

def train():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(1e-3)
    history = {}
    for step in range(120):
        x = tf.random.normal([8, 64])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        history[step] = {"loss": loss, "gradients": gradients}  # HERE

train()
"""

KEPT_IN_AN_ATTRIBUTE = """
import keras
import numpy as np

class Inspect(keras.callbacks.Callback):
    def __init__(self, x):
        super().__init__()
        self.x = x
        self.outputs = []

    def on_train_batch_end(self, batch, logs=None):
        self.outputs.append(self.model(self.x))  # HERE

x = np.random.default_rng(0).normal(size=(320, 16)).astype("float32")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(128)])
model.compile("adam", "mse")
model.fit(x, np.zeros((320, 128), "float32"), batch_size=8, epochs=5, verbose=0, callbacks=[Inspect(x)])
"""

KEPT_IN_A_CLOSURE = """
import tensorflow as tf

@tf.function
def forward(x):
    return tf.nn.relu(x)

def make_step():
    seen = []

    def step(x):
        y = forward(x)
        seen.append((y, float(tf.reduce_sum(y))))  # HERE
        return y

    return step

step = make_step()
for turn in range(150):
    step(tf.random.normal([64, 256]))
"""

KEPT_IN_FUNCTIONS = """
import tensorflow as tf

@tf.function
def step(x):
    return tf.nn.relu(x)

hooks = []
for turn in range(180):
    y = step(tf.random.normal([64, 256]))
    hooks.append(lambda y=y: float(tf.reduce_sum(y)))  # HERE
"""

RETRACED = """
import tensorflow as tf

weight = tf.Variable(tf.ones([16, 16]))

@tf.function
def train_step(x, lr):  # HERE
    weight.assign_sub(lr * tf.matmul(x, weight))

for step in range(57):
    train_step(tf.ones([16, 16]), 0.1 / (step + 1))
"""

RETRACED_BY_LENGTH = """
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((None, 4)), keras.layers.Dense(4)])

@tf.function
def predict(x):  # HERE
    return model(x)

for length in range(10, 40):
    predict(tf.ones([2, length, 4]))
"""

FUNCTION_IN_A_LOOP = """
import tensorflow as tf

weight = tf.Variable(tf.ones([16, 16]))
for fold in range(40):
    @tf.function
    def train_step(x):  # HERE
        weight.assign_add(fold * tf.matmul(x, weight))

    for step in range(3):
        train_step(tf.ones([16, 16]))
"""

MODEL_IN_A_LOOP = """
import keras
import numpy as np

def make_model(units):
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model

x = np.ones((64, 32), "float32")
y = np.ones((64, 1), "float32")
scores = []
for fold in range(6):
    model = make_model(256)  # HERE
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    scores.append(history.history["loss"][-1])
    del model
    keras.utils.clear_session()
"""

LENGTHS = """
import keras
import tensorflow as tf

layers = [keras.layers.Conv1D(filters, 5, padding="same") for filters in (24, 32, 40, 48, 56, 64)]
model = keras.Sequential([keras.Input((None, 64)), *layers])
for length in range(20, 200):
    model.predict_on_batch(tf.ones([4, length, 64]))  # HERE
"""

EAGER_CALL = """
import keras
import tensorflow as tf

inputs = keras.Input((256,))
outputs = inputs
for _ in range(40):
    outputs = keras.layers.Dense(256, "relu")(outputs)
model = keras.Model(inputs, outputs)
for turn in range(30):
    model(tf.ones([1024, 256]))  # HERE
"""

DATASET_IN_A_LOOP = """
import keras
import numpy as np
import tensorflow as tf

def scale(x):
    return x / 255.0, x[:1]

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((160, 8), "float32")
for epoch in range(5):
    data = tf.data.Dataset.from_tensor_slices(x).map(scale).batch(8)  # HERE
    model.fit(data, epochs=1, verbose=0)
"""

CACHE = """
import keras
import numpy as np
import tensorflow as tf

def examples():
    for index in range(150):
        yield np.full((64, 1024), index, "float32")

spec = tf.TensorSpec((64, 1024), tf.float32)
data = tf.data.Dataset.from_generator(examples, output_signature=spec)
data = data.cache()  # HERE

@tf.function
def step(x):
    return tf.reduce_sum(x)

for x in data:
    step(x)
"""

SHUFFLE = """
import time

import numpy as np
import tensorflow as tf

def examples():
    for index in range(450):
        time.sleep(0.01)  # A slow disk.
        yield np.full((32, 1024), index, "float32")

spec = tf.TensorSpec((32, 1024), tf.float32)
data = tf.data.Dataset.from_generator(examples, output_signature=spec)
data = data.shuffle(1_000_000)  # HERE
for x in data.take(2):
    print(x.shape)
"""

GENERATOR = """
import keras
import numpy as np

class Reader:
    def __init__(self):
        self.seen = []

    def batches(self):
        while True:
            x = np.random.default_rng(0).normal(size=(64, 1024)).astype("float32")
            self.seen.append(x)  # HERE
            yield x, x[:, :1]

model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Reader().batches(), steps_per_epoch=40, epochs=4, verbose=0)
"""

NATIVE = """
import ctypes
import tensorflow as tf

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

@tf.function
def step(x):
    return tf.reduce_sum(x)

for turn in range(150):
    step(tf.ones([8]))
    libc.memset(ctypes.c_void_p(libc.malloc(300_000)), 1, 300_000)
"""

# name: script, kind, what is named, a part of what is said.
LEAKS = {
    "kept_in_a_list": (KEPT_IN_A_LIST, "kept", "losses", "tensors"),
    "kept_in_a_dict": (KEPT_IN_A_DICT, "kept", "history", "tensors"),
    "kept_in_an_attribute": (KEPT_IN_AN_ATTRIBUTE, "kept", "Inspect.outputs", "an epoch"),
    "kept_in_a_closure": (KEPT_IN_A_CLOSURE, "kept", "seen", "tensors"),
    "kept_in_functions": (KEPT_IN_FUNCTIONS, "kept", "hooks", "holds"),
    "retraced": (RETRACED, "retraced", "train_step", "`lr` is a Python float that changes"),
    "retraced_by_length": (RETRACED_BY_LENGTH, "retraced", "predict", "`x` has another shape"),
    "function_in_a_loop": (FUNCTION_IN_A_LOOP, "rebuilt_function", "train_step", "new tf.function each time"),
    "model_in_a_loop": (MODEL_IN_A_LOOP, "rebuilt_model", "model", "registry of gradients"),
    "lengths": (LENGTHS, "lengths", "model", "different shapes"),
    "eager_call": (EAGER_CALL, "eager_call", "model", "intermediate results"),
    "dataset_in_a_loop": (DATASET_IN_A_LOOP, "rebuilt_dataset", "data", "built and traced anew"),
    "cache": (CACHE, "pipeline", "data", "cache() is filling"),
    "shuffle": (SHUFFLE, "pipeline", "data", "shuffle() is filling"),
    "generator": (GENERATOR, "kept", "Reader.seen", "arrays"),
    "native": (NATIVE, "native", "", "no Python object explains"),
}


FIT = """
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(256, 16)).astype("float32")
y = x[:, :1]
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
model.fit(x, y, batch_size=8, epochs=6, verbose=0, validation_data=(x, y))
"""

CALLBACKS = """
import tempfile
import keras
import numpy as np

class Remember(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))

x = np.random.default_rng(0).normal(size=(128, 16)).astype("float32")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "swish"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(1e-3), "mse")
with tempfile.TemporaryDirectory() as folder:
    callbacks = [
        Remember(),
        keras.callbacks.ModelCheckpoint(folder + "/{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.EarlyStopping(patience=3),
        keras.callbacks.ReduceLROnPlateau(),
        keras.callbacks.CSVLogger(folder + "/log.csv"),
    ]
    model.fit(x, x[:, :1], batch_size=8, epochs=6, verbose=0, validation_split=0.2, callbacks=callbacks)
"""

VARYING_LENGTHS = """
import keras
import numpy as np

random = np.random.default_rng(0)

def batches():
    while True:
        x = random.normal(size=(4, int(random.integers(5, 30)), 4)).astype("float32")
        yield x, x.sum(axis=(1, 2))[:, None]

model = keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(batches(), steps_per_epoch=40, epochs=4, verbose=0)
"""

CUSTOM_LOOP = """
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam()
mean = keras.metrics.Mean()

@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss

losses = []
for step in range(200):
    loss = train_step(tf.random.normal([32, 16]))
    mean.update_state(loss)
    losses.append(float(loss))
"""

EAGER_LOOP = """
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(1e-3)
for step in range(120):
    x = tf.random.normal([32, 16])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
"""

PREDICT_EVERY_EPOCH = """
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(64, 16)).astype("float32")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
best = None
for epoch in range(8):
    model.fit(x, x[:, :1], batch_size=8, epochs=1, verbose=0)
    error = float(np.mean((model.predict(x, verbose=0) - x[:, :1]) ** 2))
    best = error if best is None else min(best, error)
    model.evaluate(x, x[:, :1], verbose=0)
"""

GROWING_VOCABULARY = """
import keras
import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
vocabulary = {}
pooling = keras.layers.GlobalAveragePooling1D()
model = keras.Sequential([keras.layers.Embedding(5000, 8), pooling, keras.layers.Dense(1)])
model.compile("adam", "mse")
for step in range(150):
    words = [f"word{int(number)}" for number in random.zipf(1.3, size=160) % 100_000]
    numbers = [vocabulary.setdefault(word, len(vocabulary) % 5000) for word in words]
    model.train_on_batch(np.array(numbers).reshape(8, 20), np.ones((8, 1)))
"""

PIPELINE = """
import keras
import numpy as np
import tensorflow as tf

x = np.random.default_rng(0).normal(size=(320, 16)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
data = data.map(lambda a, b: (a * 2.0, b)).cache().shuffle(100).batch(8).prefetch(2)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(data, epochs=4, verbose=0)
"""

RELEASED = """
import gc
import keras
import numpy as np
import memfit
import tensorflow as tf
from benchmarks import heap

x = np.ones((4, 8), "float32")
readings = []
gc.freeze()  # What was there before keeps what it refers to, and need not be looked through 36 times.
for number in range(18):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64, "swish"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    for _ in range(2):
        model.train_on_batch(x, x[:, :1])
    del model
    memfit.release()
    device = tf.config.experimental.get_memory_info("CPU:0")["current"]
    readings.append((number, device, heap.held_bytes()))
"""

BOUNDED = """
import collections
import tensorflow as tf

@tf.function
def step(x):
    return tf.nn.relu(x)

last = collections.deque(maxlen=20)
for turn in range(200):
    last.append(step(tf.random.normal([64, 128])))
"""

POOL = """
import tensorflow as tf

@tf.function
def step(x):
    return tf.nn.relu(x)

pool = []
for turn in range(200):
    pool.append(step(tf.random.normal([64, 256])))
    if len(pool) > 50:
        pool.pop(0)
"""

HEALTHY = {
    "fit": FIT,
    "callbacks": CALLBACKS,
    "varying_lengths": VARYING_LENGTHS,
    "custom_loop": CUSTOM_LOOP,
    "eager_loop": EAGER_LOOP,
    "predict_every_epoch": PREDICT_EVERY_EPOCH,
    "growing_vocabulary": GROWING_VOCABULARY,
    "pipeline": PIPELINE,
    "released": RELEASED,
    "bounded": BOUNDED,
    "pool": POOL,
}
